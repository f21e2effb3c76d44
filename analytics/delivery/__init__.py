"""Delivery of the report by mail, to chats and into folders: never twice, and with a record of everything sent."""
