package doctor

import (
	"context"
	"fmt"
)

// checkSuppressions names the channels of suppressions that no address can be
// made of: they are from before such were refused, and hold for nobody. It names
// no address.
func checkSuppressions(ctx context.Context, e *exam) error {
	var channels string
	var n int64
	if err := e.queryRow(ctx, query.Suppressions, nil, &n, &channels); err != nil || n == 0 {
		return err
	}
	count := fmt.Sprint(n)
	if n >= 1000 {
		count = "1000 or more"
	}
	e.addf(Warn, "suppression-unreadable", "deed.suppressions", "look at them, "+
		"select channel, address from deed.suppressions where deed.fold_address(channel, address) is null and address not like 'hmac:%'; "+
		"suppress the addresses that were meant, and remove these: deed suppressions remove TEXT --channel CHANNEL --reason TEXT",
		"%s suppressions (%s) are of texts that are no addresses, such as one with a name: whoever they are meant for is written to", count, channels)
	return nil
}
