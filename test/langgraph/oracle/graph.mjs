// The graph that cubby's agent is compared with: a model that answers by rule, and
// tools, in the official runtime.
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessageChunk, ToolMessage } from "@langchain/core/messages";
import { ChatGenerationChunk } from "@langchain/core/outputs";
import { tool } from "@langchain/core/tools";
import { END, MessagesAnnotation, START, StateGraph, interrupt } from "@langchain/langgraph";
import { ToolNode } from "@langchain/langgraph/prebuilt";

// What the model says. It is what the model of the server that is compared says too.
import script from "./script.json" with { type: "json" };

const PIECE = 8;

function pieces(text) {
  const out = [];
  for (let i = 0; i < text.length; i += PIECE) out.push(text.slice(i, i + PIECE));
  return out;
}

const textOf = (m) => (typeof m.content === "string" ? m.content : m.content.map((b) => b.text ?? "").join(""));

/** answerTo finds the rule: by the last human message, and by whether results came after it. */
function answerTo(messages) {
  let last = messages.findLastIndex((m) => m.getType() === "human");
  const prompt = last < 0 ? "" : textOf(messages[last]);
  const results = messages.slice(last + 1).some((m) => m.getType() === "tool");
  return script.find((r) => prompt.includes(r.prompt) && Boolean(r.results) === results) ?? { text: "no rule" };
}

class Scripted extends BaseChatModel {
  _llmType() {
    return "scripted";
  }
  getLsParams() {
    return { ls_provider: "openai", ls_model_name: "gpt-4o", ls_model_type: "chat" };
  }
  async _generate(messages, options, manager) {
    let whole;
    for await (const c of this._streamResponseChunks(messages, options, manager)) whole = whole ? whole.concat(c) : c;
    return { generations: [{ text: whole.text, message: whole.message }] };
  }
  async *_streamResponseChunks(messages, options, manager) {
    const rule = answerTo(messages);
    if (rule.status) throw Object.assign(new Error(rule.text), { name: "ModelError" });
    const say = async function* (fields, text = "") {
      const chunk = new ChatGenerationChunk({ text, message: new AIMessageChunk(fields) });
      yield chunk;
      await manager?.handleLLMNewToken(text, undefined, undefined, undefined, undefined, { chunk });
    };
    for (const p of pieces(rule.text ?? "")) {
      if (rule.delay) await new Promise((done, failed) => {
        const t = setTimeout(done, rule.delay);
        options.signal?.addEventListener("abort", () => { clearTimeout(t); failed(new Error("aborted")); });
      });
      yield* say({ content: p }, p);
    }
    for (const [index, c] of (rule.toolCalls ?? []).entries()) {
      yield* say({ content: "", tool_call_chunks: [{ index, id: c.id, name: c.name, args: "", type: "tool_call_chunk" }] });
      for (const p of pieces(c.arguments)) yield* say({ content: "", tool_call_chunks: [{ index, args: p, type: "tool_call_chunk" }] });
    }
    yield* say({
      content: "",
      response_metadata: { finish_reason: rule.toolCalls ? "tool_calls" : "stop", model_name: "gpt-4o" },
      usage_metadata: { input_tokens: 10, output_tokens: 5, total_tokens: 15 },
    });
  }
}

const model = new Scripted({});

async function agent(state, config) {
  return { messages: [await model.invoke(state.messages, config)] };
}

// What cubby answers about a sandbox that is not there.
const stopSession = tool(
  (args, config) => {
    if (config.configurable?.approve) {
      const { decisions } = interrupt({
        action_requests: [{ name: "stop_session", args, description: "The agent wants to use stop_session." }],
        review_configs: [{ action_name: "stop_session", allowed_decisions: ["approve", "edit", "reject"] }],
      });
      if (decisions[0].type === "reject")
        return new ToolMessage({ content: decisions[0].message, tool_call_id: config.toolCall.id, name: "stop_session", status: "error" });
    }
    return '{"success":false}';
  },
  { name: "stop_session", description: "ends a sandbox", schema: { type: "object", properties: { session_id: { type: "string" } } } },
);

export const graph = new StateGraph(MessagesAnnotation)
  .addNode("agent", agent)
  .addNode("tools", new ToolNode([stopSession]))
  .addEdge(START, "agent")
  .addConditionalEdges("agent", (s) => (s.messages.at(-1).tool_calls?.length ? "tools" : END), ["tools", END])
  .addEdge("tools", "agent")
  .compile();
