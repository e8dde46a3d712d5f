// The same request as a command and as Python.

/** A string for a POSIX shell. */
export function shellQuote(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** A JSON value as a Python literal. */
export function pythonLiteral(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${pythonLiteral(one)}`).join(", ")}}`;
  }
  return JSON.stringify(value); // strings of JSON are strings of Python
}

/** A JSON object with each field on a line of its own. */
function jsonLines(body) {
  const fields = Object.entries(body).map(([name, value]) => `    ${JSON.stringify(name)}: ${JSON.stringify(value)}`);
  return `{\n${fields.join(",\n")}\n  }`;
}

export function asCurl({path, body}, origin, withKey) {
  const lines = [`curl ${body.stream ? "-N " : ""}${origin}${path}`];
  if (withKey) lines.push(`-H "Authorization: Bearer $FIRTH_KEY"`);
  lines.push(`-H 'Content-Type: application/json'`, `-d ${shellQuote(jsonLines(body))}`);
  return lines.join(" \\\n  ");
}

export function asPython({path, body}, origin, withKey) {
  const fields = Object.entries(body).map(([name, value]) => `    ${JSON.stringify(name)}: ${pythonLiteral(value)},`);
  const lines = withKey ? ["import os", ""] : [];
  lines.push("import requests", "", `url = "${origin}${path}"`, "body = {", ...fields, "}");
  if (withKey) lines.push(`headers = {"Authorization": "Bearer " + os.environ["FIRTH_KEY"]}`);
  const options = ["url", "json=body", withKey && "headers=headers", body.stream && "stream=True"].filter(Boolean).join(", ");
  lines.push(`answer = requests.post(${options})`);
  lines.push(...(body.stream ? ["for line in answer.iter_lines():", "    print(line.decode())"] : ["print(answer.json())"]));
  return lines.join("\n");
}
