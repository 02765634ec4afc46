package tokens

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
)

// Retainer is the part of a token source that this package uses.
type Retainer interface {
	// Retain drops the tokens of pods that known does not report.
	Retain(known func(types.UID) bool)
}

// Config holds what a Part needs.
type Config struct {
	// Tokens keeps tokens of pods. Required.
	Tokens Retainer
}

// Part hands the agent's sweeps on to a token source.
type Part struct{ tokens Retainer }

var _ part.Sweeper = (*Part)(nil)

// New checks cfg and returns a Part.
func New(cfg Config) (*Part, error) {
	if cfg.Tokens == nil {
		return nil, errors.New("tokens: Config.Tokens is required")
	}
	return &Part{tokens: cfg.Tokens}, nil
}

// Name implements part.Part.
func (*Part) Name() string { return "tokens" }

// Sweep implements part.Sweeper. It returns when the source has, and does not
// heed ctx.
func (p *Part) Sweep(_ context.Context, known func(types.UID) bool) error {
	p.tokens.Retain(known)
	return nil
}
