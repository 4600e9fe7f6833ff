package plan

// FetchLocal is Fetch from addresses of this machine.
var FetchLocal = fetch

// Statements are for the check against the schema.
var Statements = query
