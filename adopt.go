package deed

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/held"
)

// OnNewCluster is what a process that sends does where the installation is a
// copy: on another server or database than the one that it belongs to (after a
// restore, pg_upgrade or a cut-over), or in another environment.
//
// An installation belongs to the server and the database on which a process of
// it first ran, and to the environment that the first one names. A standby that
// was promoted is the same server.
type OnNewCluster string

const (
	// Continue goes on, whatever the cluster and the environment.
	Continue OnNewCluster = held.Continue
	// Hold claims and delivers nothing until admin.Client.Adopt; publishing goes on.
	// A process that names no environment holds where the installation has one.
	Hold OnNewCluster = held.Hold
)

// Check says what is wrong with the word, or with the name of an environment
// beside it.
func (o OnNewCluster) Check(environment string) error {
	var errs []error
	if o != "" && o != Continue && o != Hold {
		errs = append(errs, fmt.Errorf("option OnNewCluster %q is neither %q nor %q", errortext.Clip(string(o)), Continue, Hold))
	}
	if utf8.RuneCountInString(environment) > 100 || !utf8.ValidString(environment) || strings.ContainsRune(environment, 0) {
		errs = append(errs, errors.New("option Environment is no text of at most 100 characters"))
	}
	return errors.Join(errs...)
}

// A Holder is a [Sink] for which a process holds on a new cluster by default:
// whom it reaches, it reaches from a copy, too.
type Holder interface {
	HoldOnNewCluster() bool
}
