package schema

// BuildIndex is for tests of migrators that race.
var BuildIndex = buildIndex
