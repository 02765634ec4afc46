package localcri

// BridgeOf names the interface of the bridge of a node.
func BridgeOf(rootDir string) string { return namesFor(rootDir).bridge }
