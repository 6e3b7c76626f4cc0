/**
 * Reads TypeScript sources for the tests of the house: what a file imports, and which error codes it can throw. It
 * parses and never resolves or runs anything.
 */
import ts from 'typescript';

/** Every module a file names: static, dynamic, re-exported, types too. */
export function importsOf(text: string): string[] {
  return ts.preProcessFile(text, true, true).importedFiles.map(({ fileName }) => fileName);
}

export interface UsedCode {
  readonly file: string;
  readonly shown: string;
  /** Matches the documented code; a template's holes match any word. */
  readonly pattern: RegExp;
}

/**
 * The codes that a file gives to `new UnbrokerError(code, …)` or to a class that extends it. A code that is a
 * parameter of a helper is looked up at the helper's calls in the same file.
 */
export function codesIn(file: string, text: string): UsedCode[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const found: UsedCode[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isNewExpression(node) && node.expression.getText() === 'UnbrokerError') {
      const code = node.arguments?.[0];
      if (code !== undefined) found.push(...codesOf(code, source, file));
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

function codesOf(code: ts.Expression, source: ts.SourceFile, file: string): UsedCode[] {
  const literals = literalsIn(code);
  if (literals.length > 0) return literals.map((shown) => used(file, shown, escapeForRegExp(shown)));
  if (ts.isTemplateExpression(code)) {
    const spans = code.templateSpans.map((span) => `[a-z]+${escapeForRegExp(span.literal.text)}`).join('');
    return [used(file, code.getText(), escapeForRegExp(code.head.text) + spans)];
  }
  const calls = ts.isIdentifier(code) ? callsThatGive(code, source) : [];
  // Shown as it stands, so that the test names the place: a code must be readable from the source.
  if (calls.length === 0) return [used(file, code.getText(), '(?!)')];
  return calls
    .flatMap((argument) => literalsIn(argument))
    .map((shown) => used(file, shown, escapeForRegExp(shown)));
}

const used = (file: string, shown: string, pattern: string): UsedCode => ({
  file,
  shown,
  pattern: new RegExp(`^${pattern}$`),
});

/** The strings an expression can be: itself, or either side of a conditional. */
function literalsIn(expression: ts.Expression): string[] {
  if (ts.isStringLiteral(expression) || ts.isNoSubstitutionTemplateLiteral(expression))
    return [expression.text];
  if (ts.isParenthesizedExpression(expression)) return literalsIn(expression.expression);
  if (ts.isConditionalExpression(expression))
    return [...literalsIn(expression.whenTrue), ...literalsIn(expression.whenFalse)];
  return [];
}

/** `code` is a parameter: what the callers of that function in this file give for it. */
function callsThatGive(code: ts.Identifier, source: ts.SourceFile): ts.Expression[] {
  let scope: ts.Node = code;
  while (scope.parent !== undefined) {
    scope = scope.parent;
    if (!ts.isFunctionLike(scope)) continue;
    const index = scope.parameters.findIndex((parameter) => parameter.name.getText() === code.text);
    if (index === -1) continue;
    const name =
      scope.name?.getText() ??
      (ts.isVariableDeclaration(scope.parent) ? scope.parent.name.getText() : undefined);
    return name === undefined ? [] : argumentsOfCalls(name, index, source);
  }
  return [];
}

function argumentsOfCalls(name: string, index: number, source: ts.SourceFile): ts.Expression[] {
  const found: ts.Expression[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node) && node.expression.getText().replace(/^this\./, '') === name) {
      const argument = node.arguments[index];
      if (argument !== undefined) found.push(argument);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

function escapeForRegExp(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
