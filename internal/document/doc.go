// Package document reads a file that people write, in YAML or JSON: every value has its
// line, all problems are gathered, and a key that nobody asks for is one.
package document
