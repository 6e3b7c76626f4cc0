/**
 * The edits that hand a transaction's handle on: a parameter at a declaration, an argument at a call, a line of JSDoc where
 * a JavaScript function has its types there. Decisions come from threading.ts; offsets and text go out.
 */

import { ts } from 'ts-morph';
import { indentAt, type Layout, lineStart, type TextEdit } from './edits.js';
import type { HandleType } from './handle-types.js';
import { type FileImports, moduleName, specifierFor } from './imports.js';
import { HANDED, methodLines, signatureText, type TypeText } from './opener-text.js';
import type { Addition, Deep, NewArgument, NewParameter, Opener } from './thread-shapes.js';

export function typeTexts(file: ts.SourceFile, imports: FileImports, checker: ts.TypeChecker): TypeText {
  return ({ need, type }) => {
    if (need === undefined) return type;
    if ('module' in need) return type.replaceAll('*', () => imports.useType(need));
    if (need.file === file) return type.replaceAll('*', () => need.name);
    const module = moduleName(file, need.file, checker);
    return type.replaceAll('*', () => imports.useType({ module, name: need.name }));
  };
}

export function parameterEdits(parameter: NewParameter, text: TypeText, layout: Layout): TextEdit[] {
  const { signature, index } = parameter;
  const file = signature.getSourceFile();
  const typed = isTyped(file);
  const code = parameterText(parameter, typed, text);
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

/** The client as one more argument of a call that writes elsewhere, or instead of the pool that it was handed. */
export function handedDown(
  call: ts.CallExpression,
  deep: Deep,
  text: string,
  layout: Layout,
): readonly TextEdit[] {
  const { index, instead } = deep;
  const there = instead ? call.arguments[index] : undefined;
  if (there !== undefined) return [{ start: there.getStart(), end: there.end, text }];
  return argumentEdits({ call, index, text, awaits: false }, layout);
}

/** `client: PoolClient`, `db: Pick<Pool, 'query'> = pool`, `db?: Pick<Pool, 'query'>`. */
function parameterText(parameter: NewParameter, typed: boolean, text: TypeText): string {
  const { name, optional, type } = parameter;
  const value = typeof optional === 'string' ? ` = ${optional}` : '';
  if (!typed) return name + value;
  return `${name}${optional === true ? '?' : ''}: ${text(type)}${value}`;
}

/** A method that opens the transaction, its declaration in an interface, or `export` in front of a constant. */
export function additionEdits(addition: Addition, text: TypeText, layout: Layout): TextEdit[] {
  const { beside } = addition;
  const file = beside.getSourceFile();
  const start = beside.getStart();
  if (addition.what === 'export') return [{ start, end: start, text: 'export ' }];
  const indent = indentAt(file.text, start);
  const { opener } = addition;
  const lines =
    addition.what === 'member'
      ? [`${signatureText(opener, text)};`]
      : isTyped(file)
        ? [
            '/** Runs work in one transaction. */',
            ...methodLines(opener, signatureText(opener, text), layout),
          ]
        : [...jsDocOf(opener, file), ...methodLines(opener, `${opener.name}(work)`, layout)];
  const own = lines.map((l) => (l === '' ? '' : indent + l)).join(layout.eol);
  const gap = addition.what === 'member' ? '' : layout.eol;
  const end = beside.end;
  return [{ start: end, end, text: layout.eol + gap + own }];
}

/** Where JavaScript has its types. */
function jsDocOf({ handle }: Opener, file: ts.SourceFile): string[] {
  return [
    '/**',
    ' * Runs work in one transaction.',
    ' * @template T',
    ` * @param {(${HANDED}: ${inlineType(handle, file)}) => Promise<T>} work`,
    ' * @returns {Promise<T>}',
    ' */',
  ];
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

function isTyped(file: ts.SourceFile): boolean {
  return /\.[cm]?tsx?$/.test(file.fileName);
}

/** For JSDoc: imports are written where they are used. */
function inlineType({ need, type }: HandleType, file: ts.SourceFile): string {
  if (need === undefined) return type;
  if ('module' in need) return type.replaceAll('*', () => `import('${need.module}').${need.name}`);
  if (need.file === file) return type.replaceAll('*', () => need.name);
  return type.replaceAll('*', () => `import('${specifierFor(file, need.file)}').${need.name}`);
}

/** Behind the last `@param` of a function that describes its parameters there. */
function jsDocEdits(parameter: NewParameter, file: ts.SourceFile, layout: Layout): TextEdit[] {
  const last = ts
    .getJSDocTags(parameter.signature)
    .filter((tag): tag is ts.JSDocParameterTag => ts.isJSDocParameterTag(tag))
    .at(-1);
  if (last === undefined) return [];
  const { text } = file;
  const written = inlineType(parameter.type, file);
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
