package run

// Statements are what the tests check against the installed schema.
var Statements = query

// Waiting is how many events wait that are in no statement.
func (a *Appender) Waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue)
}
