package csi

import (
	"os"
	"testing"

	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

func TestMain(m *testing.M) { os.Exit(plugintest.MainWithMounts(m)) }
