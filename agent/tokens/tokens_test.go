package tokens_test

import (
	"testing"

	"github.com/nodewright/nodewright/agent/tokens"
)

func TestConfig(t *testing.T) {
	if _, err := tokens.New(tokens.Config{}); err == nil || err.Error() != "tokens: Config.Tokens is required" {
		t.Errorf("error %v", err)
	}
}
