// Package liquid renders the templates of campaigns: mails, texts and subjects in the
// Liquid language, which people who are not programmers write.
//
// [Parse] checks a template as a whole and says everything that is wrong with it, with
// lines: unknown tags, filters and names, blocks that do not match, data where a browser
// would take it for code. [Template.Render] then makes one recipient's text of it. In HTML
// what comes from data is escaped, for the place at which it stands, unless the template
// says raw.
//
// Rendering is a function of the template and the data alone: no clock, no chance, no
// files, no order of a map. So it can be done again years later and compared. It is
// bounded, too, whoever wrote the template: in what it writes, in what it keeps, and in
// work that is counted rather than timed, so that a busy machine fails nobody's mail.
//
// docs/templates.md says what a template may contain.
package liquid
