// The same request as a command and as Python.

/** A string for a POSIX shell. */
function shellQuote(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** A value as JSON, or with other names of the constants as Python, with spaces where lines may break. */
function literal(value, constants) {
  if (value === null || typeof value === "boolean") return constants[String(value)];
  if (Array.isArray(value)) return `[${value.map((one) => literal(one, constants)).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value); // strings of JSON are strings of Python
  const fields = Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${literal(one, constants)}`);
  return `{${fields.join(", ")}}`;
}

const asJson = (value) => literal(value, {null: "null", true: "true", false: "false"});
const asPythonLiteral = (value) => literal(value, {null: "None", true: "True", false: "False"});

/** A JSON object with each field on a line of its own. */
function jsonLines(body) {
  const fields = Object.entries(body).map(([name, value]) => `    ${JSON.stringify(name)}: ${asJson(value)}`);
  return `{\n${fields.join(",\n")}\n  }`;
}

export function asCurl({path, body}, origin, withKey) {
  const lines = [`curl ${body.stream ? "-N " : ""}${origin}${path}`];
  if (withKey) lines.push(`-H "Authorization: Bearer $FIRTH_KEY"`);
  lines.push(`-H 'Content-Type: application/json'`, `-d ${shellQuote(jsonLines(body))}`);
  return lines.join(" \\\n  ");
}

/** The request with `firth.Client`; `stream` is a method of its own there. */
export function asPython({path, body}, origin, withKey) {
  const {stream, ...fields} = body;
  const lines = withKey ? ["import os", ""] : [];
  const key = withKey ? `, key=os.environ["FIRTH_KEY"]` : "";
  const method = stream ? "stream" : path.slice(1);
  const call = [`client.${method}(`, ...Object.entries(fields).map(([name, value]) => `    ${name}=${asPythonLiteral(value)},`), ")"];
  lines.push("import firth", "", `client = firth.Client("${origin}"${key})`);
  if (stream) lines.push(`for event in ${call.join("\n")}:`, "    print(event)");
  else lines.push(`answer = ${call.join("\n")}`, "print(answer)");
  return lines.join("\n");
}
