package networktest_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/networktest"
)

// badVar says to a test binary which bad plugin it is to test.
const badVar = "NODEWRIGHT_BAD_PLUGIN"

// bad breaks one rule.
type bad struct {
	*networktest.Plugin
	rule string
	down sync.Map // IDs of attachments
}

func (b *bad) Plan(ctx context.Context, a network.Attachment) ([]byte, error) {
	if b.rule == "PlanChangesNothing" {
		b.Take("leak", netip.MustParseAddr("10.9.9.9"))
	}
	return b.Plugin.Plan(ctx, a)
}

func (b *bad) SetUp(ctx context.Context, a network.Attachment, netns string, saved []byte, guard *os.File) (network.Result, error) {
	r, err := b.Plugin.SetUp(ctx, a, netns, saved, guard)
	switch b.rule {
	case "ManyAtOnce":
		r.IPs = []netip.Addr{netip.MustParseAddr("10.9.9.9")}
	case "SetUpAndTearDown":
		r.IPs = nil
	case "ArgumentsStay":
		clear(saved)
	}
	return r, err
}

func (b *bad) TearDown(ctx context.Context, a network.Attachment, netns string, saved []byte, guard *os.File) error {
	_, down := b.down.Swap(a.ID, true)
	switch {
	case b.rule == "TearDownIsIdempotent" && down:
		return errors.New("it is down already")
	case b.rule == "TearDownWithoutNamespace" && netns == "":
		return errors.New("there is no namespace")
	case b.rule == "AnotherAgentTearsDown" && b.Given()[a.ID].IsValid():
		return nil // and leaves it
	}
	return b.Plugin.TearDown(ctx, a, netns, saved, guard)
}

func (b *bad) Run(ctx context.Context, changed func()) error {
	if b.rule == "RunEnds" {
		return errors.New("it broke")
	}
	return b.Plugin.Run(ctx, changed)
}

// Each rule is tested by a plugin that breaks it.
func TestBadPluginsDoNotConform(t *testing.T) {
	if rule := os.Getenv(badVar); rule != "" {
		p := &networktest.Plugin{}
		networktest.Conform(t, networktest.Subject{
			New:   func(*testing.T) network.Plugin { return &bad{Plugin: p, rule: rule} },
			State: func(*testing.T) string { return fmt.Sprint(p.Given()) },
			// They fail in any case, and are to do so soon.
			Timeout: 2 * time.Second,
		})
		return
	}
	for _, rule := range []string{
		"PlanChangesNothing", "ManyAtOnce", "SetUpAndTearDown", "ArgumentsStay", "TearDownIsIdempotent", "TearDownWithoutNamespace",
		"AnotherAgentTearsDown", "RunEnds",
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestBadPluginsDoNotConform$/^"+rule+"$", "-test.v")
			cmd.Env = append(os.Environ(), badVar+"="+rule)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestBadPluginsDoNotConform/"+rule) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
