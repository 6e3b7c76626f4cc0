/** The door of the codemods: a plan, ways to show it, and the one function that writes. */

export { type Applied, type ApplyOptions, applyPlan, checkApply } from './apply.js';
export { makePlan, type Plan, type PlanOptions, preparePlan } from './plan.js';
export type { PlanSite } from './plan-site.js';
export { compareRatchet, parseRatchet, renderRatchet } from './ratchet.js';
export { REASONS } from './reasons.js';
export { editedKinds } from './registry.js';
export { renderDiff } from './render/diff.js';
export { renderJson } from './render/json.js';
export { renderMarkdown } from './render/markdown.js';
export { renderSarif } from './render/sarif.js';
export { renderText } from './render/text.js';
