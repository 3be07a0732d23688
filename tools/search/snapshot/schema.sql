-- Every table and index of a snapshot; a file with any other object in its schema is not opened.
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE articles(
  id INTEGER PRIMARY KEY, pmid TEXT NOT NULL, title TEXT NOT NULL, journal TEXT NOT NULL, year INTEGER,
  abstract TEXT NOT NULL, doi TEXT NOT NULL, url TEXT NOT NULL, types TEXT NOT NULL, mesh TEXT NOT NULL,
  retracted INTEGER NOT NULL);
CREATE TABLE figures(
  id INTEGER PRIMARY KEY, uid TEXT NOT NULL, caption TEXT NOT NULL, source TEXT NOT NULL, url TEXT NOT NULL,
  pmid TEXT NOT NULL, modality TEXT NOT NULL, body_part TEXT NOT NULL);
CREATE TABLE pictures(id INTEGER PRIMARY KEY, content BLOB NOT NULL);
CREATE UNIQUE INDEX articles_pmid ON articles(pmid);
CREATE UNIQUE INDEX figures_uid ON figures(uid);
CREATE VIRTUAL TABLE article_index USING fts5(
  title, mesh, abstract, kinds, content='', tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE figure_index USING fts5(
  caption, source, modality, body_part, content='', tokenize='porter unicode61 remove_diacritics 2');
