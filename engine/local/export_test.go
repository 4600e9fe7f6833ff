package local

// CodeStatements are what the tests look at the plans of.
var CodeStatements = codeQuery
