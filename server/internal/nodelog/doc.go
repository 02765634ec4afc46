// Package nodelog serves a node's own logs: the files below a directory, and by
// queries (KEP-2258) the journal of a service or its log file.
//
//	http.Handle("/logs/", http.StripPrefix("/logs", nodelog.Handler(nodelog.Config{Query: true})))
//
//	GET /logs/kubelet.log                         a file
//	GET /logs/?query=kubelet&tailLines=100        a service
//	GET /logs/?query=containers/app.log           a file, by a query
//
// No path, link or query leads out of the directory, and only files and directories
// are opened. Files are served as plain text or bytes, HTML files included, and
// browsers must not guess the type. A file system that does not answer ends a
// request after 10 seconds. Names of services are passed to journalctl only if they
// consist of letters, digits and _.:@-.
package nodelog
