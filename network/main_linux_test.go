package network

import (
	"os"
	"testing"

	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// Namespaces are kept by mounts: those of the tests are in a mount namespace of
// their own.
func TestMain(m *testing.M) {
	if os.Getenv(victimVar) != "" {
		os.Exit(victim())
	}
	if job, ok := Jobs[os.Getenv(JobVar)]; ok {
		os.Exit(job())
	}
	os.Exit(plugintest.MainWithMounts(m))
}
