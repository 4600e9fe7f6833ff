package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

var (
	flagMissing   = regexp.MustCompile(`^required flag\(s\) "(.+)" not set$`)
	flagsTogether = regexp.MustCompile(`^if any flags in the group \[(.+)\] are set none of the others can be; \[(.+)\] were all set$`)
	flagsNone     = regexp.MustCompile(`^at least one of the flags in the group \[(.+)\] is required$`)
	tenantInSQL   = regexp.MustCompile(`no tenant is set; [^\n]* in the transaction`)
)

// ofFlags says of flags that are missing, or do not go together, which those are; "" if that is
// not what the error says.
func ofFlags(err error) string {
	text := err.Error()
	names := func(list, and string) string {
		flags := strings.Fields(strings.ReplaceAll(list, `", "`, " "))
		for i := range flags {
			flags[i] = "--" + flags[i]
		}
		last := len(flags) - 1
		if last == 0 {
			return flags[0]
		}
		return strings.Join(flags[:last], ", ") + and + flags[last]
	}
	if m := flagMissing.FindStringSubmatch(text); m != nil {
		return "give " + names(m[1], " and ")
	}
	if m := flagsTogether.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("give one of %s, and not %s at once", names(m[1], " and "), names(m[2], " and "))
	}
	if m := flagsNone.FindStringSubmatch(text); m != nil {
		return "give " + names(m[1], " or ")
	}
	return ""
}

// worded is what an error says to who has typed the command: where an error of one part of deed
// is inside another's, the program is named once; and what a transaction would do about a tenant,
// a flag does.
func worded(cmd *cobra.Command, err error) string {
	text := strings.ReplaceAll(strings.TrimPrefix(unreachable(err), "deed: "), ": deed: ", ": ")
	if cmd.Flags().Lookup("tenant") != nil {
		text = tenantInSQL.ReplaceAllString(text, "no tenant is set, and there are several: give --tenant or DEED_TENANT; deed tenant list shows them")
	}
	return text
}
