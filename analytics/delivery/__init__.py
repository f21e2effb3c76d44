"""Getting the report to people: by mail, to chats, into folders, never twice, and with a record of everything sent."""
