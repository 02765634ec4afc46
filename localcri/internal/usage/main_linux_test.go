package usage

import (
	"os"
	"testing"

	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// What the tests mount is in a mount namespace of their own.
func TestMain(m *testing.M) { os.Exit(plugintest.MainWithMounts(m)) }
