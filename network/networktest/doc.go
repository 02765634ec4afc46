// Package networktest is a kit for tests of users of network.Network, and of
// plugins: a plugin and namespaces in memory, and a conformance suite for
// network.Plugin.
//
//	n, err := network.New(network.Config{
//		Plugins:    []network.Plugin{&networktest.Plugin{}},
//		Namespaces: &networktest.Namespaces{},
//		StateDir:   t.TempDir(),
//	})
//
// It needs no root and does not change the machine.
//
// Tier: kit.
package networktest
