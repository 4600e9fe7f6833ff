package smtp

import (
	"slices"
	"strings"
)

// isAuthentic reports whether a relay that we trust has found that the mail is from the
// domain that it says: the topmost Authentication-Results (RFC 8601) of one of these
// names has dmarc=pass for that domain. A relay takes away what others have put there
// under its name, as the RFC says.
func isAuthentic(headers []string, names []string, domain string) bool {
	for _, text := range headers {
		id, results := authentication(text)
		if !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, id) }) {
			continue
		}
		for _, r := range results {
			if r.method == "dmarc" {
				return r.result == "pass" && strings.EqualFold(r.from, domain)
			}
		}
		return false
	}
	return false
}

type result struct{ method, result, from string }

// authentication reads one Authentication-Results: whose it is, and what was found.
func authentication(text string) (id string, results []result) {
	parts := strings.Split(withoutComments(text), ";")
	if fields := strings.Fields(parts[0]); len(fields) > 0 {
		id = fields[0] // a version may follow
	}
	for _, part := range parts[1:] {
		var r result
		for i, field := range strings.Fields(strings.NewReplacer(" = ", "=", "= ", "=", " =", "=").Replace(part)) {
			name, value, _ := strings.Cut(field, "=")
			value = strings.Trim(value, `"`)
			switch name = strings.ToLower(name); {
			case i == 0:
				r.method, _, _ = strings.Cut(name, "/")
				r.result = strings.ToLower(value)
			case name == "header.from":
				r.from = value
			}
		}
		results = append(results, r)
	}
	return id, results
}

// withoutComments leaves out what stands in parentheses, and what is quoted does not
// divide anything.
func withoutComments(text string) string {
	var b strings.Builder
	depth, quoted, escaped := 0, false, false
	for _, r := range text {
		switch {
		case escaped:
			escaped = false
			continue
		case r == '\\':
			escaped = true
			continue
		case quoted:
			if r == '"' {
				quoted = false
			} else if r == ';' || r == ' ' || r == '=' || r == '\t' {
				r = '_'
			}
		case depth == 0 && r == '"':
			quoted = true
		case r == '(':
			depth++
		case r == ')' && depth > 0:
			depth--
			b.WriteByte(' ')
			continue
		}
		if depth == 0 {
			b.WriteRune(r)
		}
	}
	return b.String()
}
