package contact

import (
	"errors"
	"regexp"
)

// slackPerson is a person of a workspace: the ids of users are of their team.
var slackPerson = regexp.MustCompile(`^[TE][A-Z0-9]+:[UW][A-Z0-9]+$`)

// Check says what of an identity that somebody has typed its platform would not know: a person
// in Slack is TEAM:USER. [Upsert] takes it all the same, since programs may know others. The
// error does not repeat the value.
func (i Identity) Check() error {
	if i.Type == "slack" && !slackPerson.MatchString(i.Value) {
		return errors.New("slack: a person there is TEAM:USER, such as T024BE7LD:U2147483697; a user's id alone may be another team's")
	}
	return nil
}
