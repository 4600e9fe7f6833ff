// Package file reads campaigns as people write them: a file in YAML that says what is said, by which
// provider and to whom, the texts beside it, and the rows of an audience, from CSV, from a query or from the
// contacts that there are. It checks all of it before anything is stored, loads the audience, and deploys.
//
// docs/campaigns.md has the keys of the file.
package file
