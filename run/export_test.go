package run

// Statements are what the tests check against the installed schema.
var Statements = query
