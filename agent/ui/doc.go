// Package ui is a page about a node: its pods and what each of them waits for, logs that
// follow, what was used in the last hour, events, the pods that would be evicted next,
// and the reasons why images are kept.
//
//	page, err := ui.New(ui.Config{Agent: local.NewClient(socket), Log: log})
//	go page.Run(ctx)
//	srv := &http.Server{Handler: ui.WithToken(page, token)}
//
// It only looks: no request changes anything. The page is one file without any request
// to elsewhere, and is whole without JavaScript, which only renews it.
//
// # Access
//
// Whoever may ask the handler sees logs and the environment of pods' containers. It asks
// nobody who they are: [WithToken] lets in who knows a secret, and refuses requests that
// name another host than the one asked for, so that no other page of a browser gets in.
// Behind a server that authenticates its clients the handler may stand alone. All links
// are relative, so that it may stand below any path, with http.StripPrefix.
//
// # Bounds
//
// The agent is asked for each page, and for figures every ten seconds while Run works;
// an answer that does not come within a few seconds is shown as such, and the rest of the
// page with it. A page shows [MaxPods] pods, and the last part of a log. All that comes
// from pods is text to the page, whatever it contains.
//
// Tier: beta.
package ui
