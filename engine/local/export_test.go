package local

// CodeStatements are what the tests look at the plans of.
var CodeStatements = codeQuery

// KeptPlans is how many plans the engine keeps, and about how many bytes they take.
func (e *Engine) KeptPlans() (n, size int) {
	e.plans.mu.Lock()
	defer e.plans.mu.Unlock()
	return len(e.plans.known), e.plans.size
}
