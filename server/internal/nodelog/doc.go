// Package nodelog serves a node's own logs: the files below a directory, and, by queries
// (KEP-2258), the journal or log file of a service.
//
//	http.Handle("/logs/", http.StripPrefix("/logs", nodelog.Handler(nodelog.Config{Query: true})))
//
//	GET /logs/kubelet.log                         a file
//	GET /logs/?query=kubelet&tailLines=100        a service
//	GET /logs/?query=containers/app.log           a file, by a query
//
// No path, link or query leads out of the directory, and only files and directories are opened.
// All files, including HTML, are served as plain text or bytes, and browsers are told not to
// guess the type. If a file system does not answer, the request ends after 10 seconds. Names of
// services are passed to journalctl only if they consist of letters, digits and _.:@-.
package nodelog
