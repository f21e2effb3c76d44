"""What the pages show, for programs: endpoints as data, the routes, the OpenAPI document and the MCP tools that they make."""
