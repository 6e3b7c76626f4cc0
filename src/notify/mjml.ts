/**
 * MJML to HTML, when templates are pushed or checked, so that neither doors nor workers need it. The compiler is 57 MB in
 * 200 packages: too heavy to bring along, so whoever writes MJML installs it (`npm i mjml`), and it is loaded only here.
 */
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { EXIT, UnbrokerError } from '../errors.js';

type Compile = (
  source: string,
  options: { readonly ignoreIncludes: true; readonly validationLevel: 'strict' },
) => { readonly html: string } | Promise<{ readonly html: string }>;

/** `directory`: where the team's packages are. Handlebars expressions pass through as they are. Throws UnbrokerError. */
export async function compileMjml(source: string, directory: string): Promise<string> {
  const compile = load(directory);
  try {
    // Includes would read any file of the machine.
    const { html } = await compile(source, { ignoreIncludes: true, validationLevel: 'strict' });
    return html;
  } catch (error) {
    const [line = ''] = (error instanceof Error ? error.message : '').split('\n');
    throw new UnbrokerError('template-invalid', `A template's MJML does not compile: ${line.slice(0, 200)}`, {
      hint: 'Correct the .mjml file; unbroker templates check compiles it again.',
      exitStatus: EXIT.badInput,
    });
  }
}

function load(directory: string): Compile {
  try {
    const loaded = createRequire(join(directory, 'package.json'))('mjml') as Compile | { default: Compile };
    return typeof loaded === 'function' ? loaded : loaded.default;
  } catch (error) {
    throw new UnbrokerError('mjml-missing', 'A template is written in MJML and no compiler is installed', {
      hint: 'Install it beside the config: npm i mjml',
      exitStatus: EXIT.badInput,
      cause: error,
    });
  }
}
