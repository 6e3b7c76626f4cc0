/** Runs RUN_FILE, a TypeScript program, in this very process: what kills the process kills the program. */
import { register } from 'tsx/esm/api';

register();
process.argv[1] = process.env.RUN_FILE;
await import(process.env.RUN_FILE);
