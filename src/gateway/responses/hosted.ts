/**
 * OpenAI's hosted tools, and the items that they leave in a conversation. They cost extra, or read data that is stored
 * at OpenAI. They are dropped and named in `x-dropped-params`, unless the route has its own /responses and an admin
 * allows them there: `tools.web_search`, `input.web_search_call`. Source: RSP-5.
 */

const HOSTED_TOOLS: ReadonlySet<string> = new Set(
  `file_search code_interpreter image_generation local_shell shell apply_patch mcp tool_search computer
  computer_use_preview programmatic_tool_calling`.split(/\s+/),
);

export const HOSTED_ITEMS: ReadonlySet<string> = new Set(
  `web_search_call file_search_call code_interpreter_call image_generation_call mcp_list_tools mcp_call
  mcp_approval_request mcp_approval_response tool_search_call tool_search_output computer_call computer_call_output
  local_shell_call local_shell_call_output shell_call shell_call_output apply_patch_call apply_patch_call_output
  compaction compaction_summary`.split(/\s+/),
);

/** Whether a tool of this type is a hosted one. The web search has dated names, as in `web_search_2025_08_26`. */
export function isHostedTool(type: string): boolean {
  return HOSTED_TOOLS.has(type) || type.startsWith("web_search");
}
