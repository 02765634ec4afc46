// Plugin is the CNI plugin of package fakecni, as an executable.
package main

import (
	"os"

	"github.com/nodewright/nodewright/network/cni/internal/fakecni"
)

func main() { os.Exit(fakecni.Main()) }
