package schema

// BuildIndex is for tests of migrators that race.
var BuildIndex = buildIndex

// InTheWay is for tests of who is named.
var InTheWay = inTheWay
