// Package networktest is for tests of what uses a network.Network, and of
// plugins: a plugin and namespaces in memory, and the contract of network.Plugin
// as tests.
//
//	n, err := network.New(network.Config{
//		Plugins:    []network.Plugin{&networktest.Plugin{}},
//		Namespaces: &networktest.Namespaces{},
//		StateDir:   t.TempDir(),
//	})
//
// It needs no root and changes nothing of the machine.
//
// Tier: kit.
package networktest
