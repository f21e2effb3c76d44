"""The API: what the pages show, for programs. Endpoints as data, and the routes, OpenAPI document and MCP tools made from them."""
