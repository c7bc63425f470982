/* In asv's index.html: an address without a view leads to the published figures, the front page. */
"use strict";
if (!location.hash) location.replace("figures.html");
