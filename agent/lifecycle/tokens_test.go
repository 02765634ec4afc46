package lifecycle_test

import (
	"testing"

	"github.com/nodewright/nodewright/agent/lifecycle"
)

func TestTokensConfig(t *testing.T) {
	if _, err := lifecycle.NewTokens(lifecycle.TokensConfig{}); err == nil || err.Error() != "tokens: TokensConfig.Tokens is required" {
		t.Errorf("error %v", err)
	}
}
