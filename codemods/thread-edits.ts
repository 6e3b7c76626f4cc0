/**
 * The edits that hand a transaction's handle on: a parameter at a declaration, an argument at a call, a line of JSDoc where
 * a JavaScript function has its types there. Decisions come from threading.ts; offsets and text go out.
 */

import { ts } from 'ts-morph';
import { indentAt, type Layout, lineStart, type TextEdit } from './edits.js';
import type { FileImports } from './imports.js';
import type { NewArgument, NewParameter } from './thread-shapes.js';

export function parameterEdits(parameter: NewParameter, imports: FileImports, layout: Layout): TextEdit[] {
  const { signature, index } = parameter;
  const file = signature.getSourceFile();
  const typed = /\.[cm]?tsx?$/.test(file.fileName);
  const code = parameterText(parameter, typed, imports);
  const list = signature.parameters;
  const documented = typed ? [] : jsDocEdits(parameter, file, layout);
  const [first] = list;
  const isBare =
    ts.isArrowFunction(signature) &&
    first !== undefined &&
    !file.text.slice(signature.getStart(), first.getStart()).includes('(');
  if (isBare) {
    const [before, after] = index === 0 ? [`${code}, `, ''] : ['', `, ${code}`];
    return [
      { start: first.getStart(), end: first.getStart(), text: `(${before}` },
      { start: first.end, end: first.end, text: `${after})` },
      ...documented,
    ];
  }
  return [inserted(list, index, code, openingOf(signature, file), file, layout), ...documented];
}

export function argumentEdits(argument: NewArgument, layout: Layout): TextEdit[] {
  const { call, index, text, awaits } = argument;
  const file = call.getSourceFile();
  const start = call.getStart();
  const open = file.text.indexOf('(', call.typeArguments?.end ?? call.expression.end) + 1;
  // What may be left out is named when something follows it.
  const at = Math.min(index, call.arguments.length);
  const filled = [...Array<string>(index - at).fill('undefined'), text].join(', ');
  return [
    ...(awaits ? [{ start, end: start, text: 'await ' }] : []),
    inserted(call.arguments, at, filled, open, file, layout),
  ];
}

/** `client: PoolClient`, `db: Pick<Pool, 'query'> = pool`, `db?: Pick<Pool, 'query'>`. */
function parameterText(parameter: NewParameter, typed: boolean, imports: FileImports): string {
  const { name, optional } = parameter;
  const value = typeof optional === 'string' ? ` = ${optional}` : '';
  if (!typed) return name + value;
  return `${name}${optional === true ? '?' : ''}: ${typeText(parameter, imports)}${value}`;
}

function inserted(
  list: ts.NodeArray<ts.Node>,
  index: number,
  code: string,
  open: number,
  file: ts.SourceFile,
  layout: Layout,
): TextEdit {
  const { text } = file;
  const before = list[index - 1];
  const next = list[index];
  const [first] = list;
  const spread = first !== undefined && text.slice(open, first.getStart()).includes('\n');
  if (before !== undefined) {
    const gap = spread ? `,${layout.eol}${indentAt(text, before.getStart())}` : ', ';
    return { start: before.end, end: before.end, text: gap + code };
  }
  if (next === undefined) return { start: open, end: open, text: code };
  const gap = spread ? `,${layout.eol}${indentAt(text, next.getStart())}` : ', ';
  return { start: next.getStart(), end: next.getStart(), text: code + gap };
}

/** Behind the parenthesis that opens the parameters. */
function openingOf(signature: ts.SignatureDeclaration, file: ts.SourceFile): number {
  const [first] = signature.parameters;
  const named = 'name' in signature ? (signature.name as ts.Node | undefined) : undefined;
  const from = signature.typeParameters?.end ?? named?.end ?? signature.getStart();
  const at = file.text.indexOf('(', from) + 1;
  return first === undefined ? at : Math.min(at, first.getStart());
}

function typeText(parameter: NewParameter, imports: FileImports): string {
  const { need, type } = parameter.type;
  return type.replace('*', () => imports.useType(need));
}

/** Behind the last `@param` of a function that describes its parameters there. */
function jsDocEdits(parameter: NewParameter, file: ts.SourceFile, layout: Layout): TextEdit[] {
  const last = ts
    .getJSDocTags(parameter.signature)
    .filter((tag): tag is ts.JSDocParameterTag => ts.isJSDocParameterTag(tag))
    .at(-1);
  if (last === undefined) return [];
  const { text } = file;
  const { need, type } = parameter.type;
  const written = type.replace('*', () => `import('${need.module}').${need.name}`);
  const named = parameter.optional === undefined ? parameter.name : `[${parameter.name}]`;
  const line = `@param {${written}} ${named}`;
  const start = lineStart(text, last.getStart());
  const lead = /^[ \t]*\*?[ \t]*/.exec(text.slice(start))?.[0] ?? ' * ';
  const end = text.indexOf('\n', last.getStart());
  const close = text.indexOf('*/', last.getStart());
  if (end < 0 || close < end) {
    // A comment of one line.
    let at = close;
    while (/[ \t]/.test(text[at - 1] ?? '')) at--;
    return [{ start: at, end: at, text: ` ${line}` }];
  }
  if (!lead.includes('*')) return [];
  const at = text[end - 1] === '\r' ? end - 1 : end;
  return [{ start: at, end: at, text: `${layout.eol}${lead}${line}` }];
}
