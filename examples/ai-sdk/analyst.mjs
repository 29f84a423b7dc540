// A data analyst with the Vercel AI SDK. The model writes Python, cubby runs it in a
// sandbox of its own, and the plots are saved here.
//
// Run the daemon (make demo), then:
//
//     npm ci
//     OPENAI_API_KEY=… node analyst.mjs "How are the gaps between primes below a million distributed?"
//
// CUBBY_URL and CUBBY_TOKEN say where the daemon is, MODEL and OPENAI_BASE_URL which
// model answers.
import { randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { createMCPClient } from "@ai-sdk/mcp";
import { openai } from "@ai-sdk/openai";
import { isStepCount, streamText } from "ai";

const { CUBBY_URL = "http://127.0.0.1:9090", CUBBY_TOKEN, MODEL = "gpt-5-mini" } = process.env;
const question =
  process.argv.slice(2).join(" ") ||
  "Simulate 1,000 random walks of 500 steps. How far from the start do they end? Plot the distribution.";

// The sandboxes of a conversation belong together: only it sees them, and they are
// removed with it.
const conversation = `analyst-${randomUUID()}`;
const authorization = CUBBY_TOKEN ? { Authorization: `Bearer ${CUBBY_TOKEN}` } : {};

const cubby = await createMCPClient({
  transport: {
    type: "http",
    url: `${CUBBY_URL}/mcp`,
    headers: { ...authorization, "Cubby-Thread": conversation },
  },
});

let plots = 0;

// show prints what a tool answered, and saves the images in it.
async function show({ content, structuredContent: answer }) {
  if (answer.stdout) console.log(answer.stdout.trimEnd());
  if (answer.error) console.log(answer.error.traceback ?? answer.error);
  for (const image of content.filter((block) => block.type === "image")) {
    const file = `plot-${++plots}.${image.mimeType.split("/")[1]}`;
    await writeFile(file, Buffer.from(image.data, "base64"));
    console.log(`[saved ${file}]`);
  }
}

try {
  const { stream } = streamText({
    // openai.chat(MODEL) is for servers that know only chat completions. They have no
    // place for plots in the answer of a tool: see docs/mcp.md.
    model: openai(MODEL),
    tools: await cubby.tools(),
    stopWhen: isStepCount(20),
    instructions: "You are a data analyst. Compute with Python in a session instead of guessing, and plot with matplotlib.",
    prompt: question,
    onError() {}, // the stream has it too
  });
  for await (const part of stream) {
    switch (part.type) {
      case "text-delta":
        process.stdout.write(part.text);
        break;
      case "tool-call":
        console.log(`\n> ${part.toolName}`);
        console.log(part.input?.code ?? JSON.stringify(part.input));
        break;
      case "tool-result":
        await show(part.output);
        break;
      case "tool-error": // no answer from the daemon; the model is told
        console.log(String(part.error));
        break;
      case "error": // no answer from the model
        throw part.error;
    }
  }
  console.log();
} catch (error) {
  console.error(String(error));
  process.exitCode = 1;
} finally {
  await cubby.close();
  await fetch(`${CUBBY_URL}/v1/threads/${conversation}`, { method: "DELETE", headers: authorization });
}
