package csi

import (
	"os"
	"testing"

	"github.com/nodewright/nodewright/volumemgr/mount/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Main(m)) }
