package nodeagent_test

import (
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/testprogram"
)

// A program has the code of the parts and services that it names, and no other.
func TestWhatIsNotNamedIsNotLinked(t *testing.T) {
	if testing.Short() {
		t.Skip("links a program; left out with -short")
	}
	symbols := testprogram.Go(t, ".", "tool", "nm", testprogram.Build(t, "./nodeagent/testdata/small"))
	const module = "github.com/nodewright/nodewright/"
	for _, want := range []string{"agent/pressure.NewStats", "agent.New"} {
		if !strings.Contains(symbols, " "+module+want+"\n") {
			t.Errorf("%s is not linked", want)
		}
	}
	for _, not := range []string{
		"agent/pressure.NewCollection", "agent/pressure.NewEviction", "agent/pressure.NewOOMKills", "agent/pressure.NewPreemption",
		"agent/resources.", "agent/lifecycle.",
		"agent/local.Handler", "server.New", "devicemgr.New", "dra.New", "fit.NewPlacement", "kubeapi/",
	} {
		if strings.Contains(symbols, " "+module+not) {
			t.Errorf("%s is linked, and nobody names it", not)
		}
	}
}
