package liquid

import "github.com/deedhq/deed/campaign"

// Engine is [Parse] for [campaign.NewComposer].
func Engine(kind campaign.Kind, source string, names []string) (campaign.Template, error) {
	t, err := Parse(map[campaign.Kind]Kind{campaign.Plain: Text, campaign.Page: HTML, campaign.Line: Subject}[kind], source, names)
	if err != nil {
		return nil, err
	}
	return t, nil
}
