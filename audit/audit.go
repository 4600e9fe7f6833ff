// Package audit names who does something to an installation, and why, as the
// audit log keeps it for every act of an operator: those of the packages admin,
// delivery and tenant. [github.com/deedhq/deed/admin.Client.Audit] reads the
// log.
package audit

// An Act is who does something and why. What an act must name its function
// says.
type Act struct {
	By     string // a person or a program; up to 200 characters
	Reason string // up to 2,000 characters
}
