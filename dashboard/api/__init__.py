"""The API: what the pages show, for programs. Endpoints are data for the routes, the OpenAPI document and MCP tools."""
