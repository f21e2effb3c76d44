"""The report as one self-contained page without any script, and as the body of a mail."""

from analytics.render.html.mail import IMAGE_ID, mail_body
from analytics.render.html.page import page

__all__ = ["IMAGE_ID", "mail_body", "page"]
