// Package plan reads and keeps workflow plans (R9, R12): steps, what each waits for, and
// what it does, in YAML or JSON.
//
// [Parse] reads a plan and says all that is wrong with it, with lines. [Put] stores it: a
// tenant's plan of a name and a version never changes, and a run keeps the version that it
// began with. [Load] gets it back, and refuses bytes that are not those that were stored.
// Conditions and values are expressions of CEL over the run's input, the plan's parameters
// and what the steps before came to; [Step.Holds] and [Step.Resolve] compute them.
//
// What the package does not do: it executes nothing.
package plan
