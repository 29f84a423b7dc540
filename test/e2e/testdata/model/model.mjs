// Answers the programs of examples as a model would, and prints its address. What it
// says depends on what it is asked and on what the tools returned.
import { LLMock } from "@copilotkit/aimock";

const mock = await LLMock.create({ port: 0, host: "127.0.0.1", strict: true, chunkSize: 8 });

const textOf = ({ content }) => (typeof content === "string" ? content : content.map((part) => part.text ?? "").join(""));
const results = ({ messages }) => messages.filter((message) => message.role === "tool");
const call = (name, args) => ({ toolCalls: [{ name, arguments: JSON.stringify(args) }] });

// The analyst plots the digest of a word, and looks at the plot.
const plot = (word) => `import hashlib, os
import matplotlib.pyplot as plt
digest = hashlib.sha256(b"${word}").digest()
plt.bar(range(len(digest)), list(digest))
print(os.getcwd(), digest.hex())`;
const primes = `sieve = bytearray([0, 0]) + bytearray([1]) * 999_998
for n in range(2, 1000):
    if sieve[n]:
        sieve[n * n :: n] = bytes(len(range(n * n, 1_000_000, n)))
print(sum(sieve))`;

// overMCP runs code in a session that it makes, and says what came of it.
const overMCP = (question, codeFor) =>
  mock.on({ userMessage: question }, (request) => {
    const [made, ran] = results(request);
    if (!made) return { content: "A session first.", ...call("create_session", { language: "python" }) };
    const id = JSON.parse(textOf(made)).session_id;
    const asked = textOf(request.messages.findLast((message) => message.role === "user"));
    if (!ran) return call("execute_code", { session_id: id, code: codeFor(asked) });
    const plots = ran.content.filter((part) => part.type === "input_image").length;
    return { content: `Session ${id} printed ${JSON.parse(textOf(ran)).stdout.trim()} and showed ${plots} plots.` };
  });

overMCP("Plot the digest of", (asked) => plot(asked.split(" ").at(-1)));
overMCP("How many primes are below a million?", () => primes);

// Cubby's agent runs commands, of which a person has approved, and exports.
const inTurn = ({ messages }) => messages.slice(messages.findLastIndex((message) => message.role === "user"));
const overAgent = (question, name, argsFor, answer) =>
  mock.on({ userMessage: question }, (request) => {
    const [asked, ...since] = inTurn(request);
    const result = since.find((message) => message.role === "tool");
    return result ? { content: answer(textOf(result)) } : call(name, argsFor(textOf(asked)));
  });

overAgent(
  "Write the digest of",
  "execute_terminal",
  (asked) => ({ command: `pwd; printf %s ${asked.split(" ").at(-1)} | sha256sum | tee digest.txt` }),
  (result) => (result.startsWith("{") ? `It printed ${JSON.parse(result).stdout.trim()}.` : `I was told: ${result}`),
);
overAgent(
  "Export the files",
  "export_files",
  () => ({ files: [{ source: "digest.txt" }] }),
  (result) => (JSON.parse(result).success ? "Here it is." : "There is none."),
);

console.log(mock.url);
